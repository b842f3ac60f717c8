"""Measurements: loading, checking, storing and summarising data (docs/fitting.md).

- `observations`: time series of observables, and the data structures that users build.
- `inputs`: known inputs with zero-order hold or linear interpolation, also after a dead time (delay).
- `statistics`: additive sufficient statistics (Chebyshev moments by a non-uniform FFT).
- `row_store`: rows larger than memory in a temporary file.
- `records`: measurements of one or several records, decimation, scaling.
- `noise`: known and estimated measurement noise.
- `tables`: readers of text files, Parquet files and DataFrames.
- `time_reference`: conversion of dates to numbers.
- `streams`: block-wise accumulation of statistics, also with Dask.
- `sources`: loading of everything that ``fit`` accepts.
- `preview`, `follow`: inspection of unknown files, and growing files.
"""
