auto images = torch::rand({256, 1, 8, 8});
auto labels = torch::randint(10, {256}, torch::kLong);
