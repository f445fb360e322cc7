// exit: 2
// run: -n 2 --keep-going

// %% as expected tags=["raises-exception"]
std::abort();
// %% what can't run is said to
1 + 1
// %% a new session
%dist_reset
// %% goes on
1 + 2
