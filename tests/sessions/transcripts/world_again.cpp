// A group that a cell ends can be made again, and is the session's; in between nothing is compared.
// %% end it
dist::destroy_process_group();
// %% tags=["raises-exception"]
auto t = torch::ones(3) * rank;
%verify t
// %%
dist::init_process_group();
std::cout << dist::get_rank() << " of " << dist::get_world_size() << "\n";
auto s = torch::ones(1); dist::all_reduce(s); s
// %% tags=["expects-finding=verify:mismatch"]
%verify t
// %%
%verify t --ranks 0
// %% again
dist::destroy_process_group();
dist::init_process_group("gloo");
dist::all_reduce(s); s
// %% tags=["expects-finding=hang:hang"]
if (rank == 0) dist::barrier();
