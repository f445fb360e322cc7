// run: -n 2
// No name of a cell disturbs the showing of values or the functions of magics.

// %%
bool lockstep = true; auto dist = 0.5; auto t = torch::ones({2});

// %%
lockstep

// %%
%verify t
dist::get_world_size() * dist

// %%
struct inspect { int verify = 1; };
namespace lockstep { struct RankSet {}; struct VerifyOptions {}; }

// %%
%verify t --ranks 0-1

// %%
%grads t --local

// %%
#define verify nothing like it (
#define VerifyOptions 0
%verify t

// %%
#undef verify
1 + inspect().verify

// %%
while (true) { static int turns = 0; if (++turns == 3) break; }
