"""`postdate spark`: the bulk jobs. pyspark is imported when one runs, never before."""
