// Generators that are meant to be equal, and are, after as many draws on each rank.
// ranks: 2
// ok: verify

// %% draw
set_seed(3);
auto x = torch::randn({5}) * rank;
%verify rng
