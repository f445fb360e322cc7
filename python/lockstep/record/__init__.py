"""Steps of a program that are recorded, or replayed by one rank alone (collectives/replay/)."""
