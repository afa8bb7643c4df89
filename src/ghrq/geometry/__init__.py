"""The Poincaré ball: its functions, nearest codes, k-means, and the geoopt manifold."""
