// Every rank shuffles with the same seed, and nobody takes a share.
// symptom: more ranks do not make an epoch shorter
// run: `%data indices`
// cause: a random sampler instead of a distributed one
// fix: `ddp::random_sampler(size)`
// thread: binbinao/physicsnemo-from-zero-to-one#143
// ranks: 2
// expect: data:duplicate_data kind=order ranks=0-1 object=indices

// %% indices
set_seed(42);
auto indices = torch::randperm(100);
%data indices --size 100
