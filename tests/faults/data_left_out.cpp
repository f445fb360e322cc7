// The dataset is cut into shares of a fixed size, and what is left belongs to nobody.
// symptom: a class that stands at the end of the dataset is never learnt
// ask: `%data indices --size N`
// cause: a size of shares that was right for an older dataset
// mend: compute shares from the dataset's size
// ranks: 3
// expect: data:missing kind=sample ranks=0-2 object=indices

// %% shares
auto indices = torch::arange(rank * 300, (rank + 1) * 300);
%data indices --size 1000
