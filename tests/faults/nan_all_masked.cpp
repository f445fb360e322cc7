// Attention over a row whose keys are all masked: softmax of nothing but -inf.
// symptom: NaN for samples that are padding only
// run: `%%nan` over the step
// cause: softmax of a row of -inf is 0 / 0
// fix: leave such rows out, or mask with the lowest finite number
// thread: huggingface/transformers#17437
// ranks: 2
// expect: nan:nan kind=forward ranks=1 reference=0 op=softmax where=here

// %% a step
%%nan
set_seed(1);
torch::nn::Linear net(4, 4);
auto scores = net(torch::ones({4, 4}));
auto padding = torch::zeros({4, 4}, torch::kBool);
if (rank == 1) padding[2].fill_(true);
auto weights = torch::softmax(scores.masked_fill(padding, -INFINITY), 1);  // <- here
weights.square().sum().backward();
