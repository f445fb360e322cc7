// The dataset is cut into shares of a fixed size, and what is left belongs to nobody.
// symptom: a class at the end of the dataset is never learnt
// run: `%data indices --size N`
// cause: shares computed for an older dataset
// fix: compute shares from the dataset's size
// ranks: 3
// expect: data:missing kind=sample ranks=0-2 object=indices

// %% shares
auto indices = torch::arange(rank * 300, (rank + 1) * 300);
%data indices --size 1000
