// One rank keeps a convolution's weight in channels_last: the same values in other places.
// ranks: 2
// ok: verify

// %% another layout
set_seed(1);
torch::nn::Conv2d net(3, 8, 3);
if (rank == 1) net->weight.set_data(net->weight.contiguous(torch::MemoryFormat::ChannelsLast));
%verify net
