"""What is checked on the driver before anything starts: values, the search, and targets that a config names."""
