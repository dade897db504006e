"""Write a dump as tables for SQL engines and data frames, or as curves for TensorBoard."""
