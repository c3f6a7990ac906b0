"""Submit a Spark job: is Spark installed, does its master answer, and what spark-submit is given."""
