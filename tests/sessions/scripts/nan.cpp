// %% what a traced cell shows is a result tags=["expects-finding=nan:inf"]
%%nan
auto x = torch::full({2}, rank == 1 ? 0.0 : 1.0);
x.log()

// %% shown in the middle, within a container, and gone tags=["expects-finding=nan:nan"]
%%nan
show(std::vector<torch::Tensor>{x, (x - 2).sqrt()});

// %% what was asked for is no finding
%%nan
torch::zeros({2}).masked_fill(torch::ones({2}, torch::kBool), -INFINITY)

// %% nor what nobody gets to see
%%nan
torch::softmax(torch::ones({3, 3}).tril().log(), -1)

// %% the sentinel looks at training; what is shown stands before everybody's eyes
%nan on
x.log()

// %% off
%nan off
