"""CSV and Parquet files that are migrated: unpacked, typed and read beside an instance.

A cell runs it in the sandbox of the instance, without a network, with the files to read and nothing
else: whatever a file does to what reads it, it does there. The cell hears lines of JSON and blocks
of bytes, both with bounds.
"""
