"""Reports: tables, figures and examples of codes on one page that needs nothing but a browser."""
