// run: -n 2

// %% groups in turn
auto first = dist::new_group({0, 1}), second = dist::new_group({0, 1});
auto t = torch::ones({2});
for (auto& group : {second, first, second}) dist::all_reduce(t, dist::ReduceOp::SUM, group);
dist::broadcast(t, 0);

// %% the newest of all groups, in the order in which they were entered
%collectives 0 -n 3

// %% messages between two ranks go by their tags
if (rank == 0) dist::send(t, 1, {}, 5);
if (rank == 1) dist::recv(t, 0, {}, 5);
auto sum = dist::all_gather_object(rank);

// %% a row for each message, beside the collectives
%collectives 1 -n 2
