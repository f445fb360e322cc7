// %% a line that is the same on all ranks
std::vector<double> losses;
for (int step = 0; step < 40; ++step) losses.push_back(2.5 / (1 + 0.1 * step));
show::plot({{"loss", losses}}, {.title = "Loss", .x = "step", .y = "loss"});

// %% each rank its own, with x
show::plot({{"accuracy", std::vector<int>{10, 20, 30}, torch::tensor({0.25, 0.5, 0.75 + 0.125 * rank})}});

// %% two series
show::plot({{"train", torch::arange(5)}, {"test", std::vector<torch::Tensor>{torch::tensor(4.0), torch::tensor(2.0)}}});

// %% bars
show::plot({{"speed-up", {1.0, 1.9, 3.6}}}, {.y = "times one rank", .labels = {"1 rank", "2 ranks", "4 ranks"}});

// %% gaps, and numbers that are none
show::plot({{"spike", {1, 2, INFINITY, 2, 1}}});
show::plot({{"nothing", {NAN}}});

// %% no series tags=["raises-exception"]
show::plot({});

// %% x and y of different length tags=["raises-exception"]
show::plot({{"loss", std::vector<int>{1}, losses}});

// %% not a series tags=["raises-exception"]
show::plot({{"weights", torch::ones({2, 2})}});
