// Gathered values of unequal length, which may differ.
// ranks: 3

// %% gather
std::vector<int> mine(static_cast<size_t>(rank + 1), rank);
auto all = dist::all_gather_object(mine);
auto sizes = all.size();
