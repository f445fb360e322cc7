// Activations in half precision that grow beyond 65504.
// symptom: Inf or NaN in half precision, none in float
// run: `%%nan` over the step
// cause: the largest float16 is 65504
// fix: bfloat16, or scale before the product
// thread: huggingface/transformers#12225
// ranks: 2
// expect: nan:inf kind=forward ranks=0-1 op=mul where=here

// %% a step
%%nan
set_seed(1);
torch::nn::Linear net(4, 3);
auto hidden = (net(torch::ones({2, 4})).abs() + 300).to(torch::kHalf);
auto energy = hidden * hidden;  // <- here
energy.to(torch::kFloat).mean().backward();
