// Each rank seeds its generators with its own number, where the same numbers were wanted on all.
// symptom: an augmentation that should be the same on all ranks differs
// ask: `%verify rng`
// cause: `set_seed(seed + rank)`, as it is right for dropout under a wrapper
// mend: where draws have to be equal, a generator of its own with one seed
// ranks: 3
// severity: note
// exit: 0
// expect: verify:diverged_seed kind=rng ranks=0-2

// %% seeds
set_seed(100 + rank);
auto crop = torch::randint(32, {2});
%verify rng
