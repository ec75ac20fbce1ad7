"""Problem sets: read from files and the Hub, checked, and cleaned.

    SourceConfig ─► open_rows ─► scan_records ─► open_problems   a lazy sequence of problems to train on
                                      └────────► run_check       what is wrong with the set
                                                 └─► run_clean   the set mended, and why each row was touched

Nothing here imports torch; pyarrow and datasets are imported by the functions that read with them.
"""
