// Each rank seeds its generators with its own number, where the same numbers were wanted on all.
// symptom: an augmentation that should be the same on all ranks differs
// run: `%verify rng`
// cause: `set_seed(seed + rank)`, which is right for dropout with a wrapper
// fix: a separate generator with one seed for numbers that have to be equal
// ranks: 3
// severity: note
// exit: 0
// expect: verify:diverged_seed kind=rng ranks=0-2

// %% seeds
set_seed(100 + rank);
auto crop = torch::randint(32, {2});
%verify rng
