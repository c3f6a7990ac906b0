"""Read the changes between two versions with Spark, and append them to a target."""
