"""What tools/bench is made of: the plan of a run, the programs it starts, the goals, the table."""
