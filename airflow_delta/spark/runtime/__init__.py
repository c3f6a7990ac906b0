"""What every Spark job needs: its session, Hadoop's settings and locations, readable errors."""
