// One rank's indices run beyond the dataset.
// symptom: a crash in the loader of the last rank
// run: `%data indices --size N`
// cause: a share rounded up
// fix: `std::min` with the size
// ranks: 2
// expect: data:mismatch kind=index ranks=1 reference=0 object=indices

// %% shares
auto indices = torch::arange(rank * 50, (rank + 1) * 50);
%data indices --size 99
