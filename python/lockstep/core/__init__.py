"""What all parts use: the library and its operators, exceptions, reports, the job's default group."""
