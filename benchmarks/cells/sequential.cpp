torch::nn::Sequential model(torch::nn::Linear(64, 32 + @), torch::nn::ReLU(), torch::nn::Linear(32 + @, 32), torch::nn::Tanh(),
                            torch::nn::Dropout(0.1), torch::nn::Linear(32, 10));
model->forward(images.view({-1, 64})).sizes()
