"""Audio files: read and written in blocks, any rate and number of channels."""
