// Samples that each rank draws at random, with replacement, from all of the data: as nnU-Net does.
// thread: MIC-DKFZ/nnUNet#1109
// ranks: 2
// ok: data

// %% indices
set_seed(42 + rank);
auto indices = torch::randint(1000, {500});
%data indices --size 1000
