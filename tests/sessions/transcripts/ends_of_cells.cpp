// run: -n 2
// Cells that end otherwise than they should, none of which ends a rank.

// %% a program that was pasted
#include <iostream>
int main() {
  std::cout << "a program\n";
}
// %%
main()

// %% tags=["raises-exception"]
std::throw_with_nested(std::runtime_error("outside of any handler"));

// %% tags=["raises-exception"]
throw;

// %% tags=["raises-exception"]
/* a comment
that is never closed

// %%
int x = 4;

// %%
int(x)

// %%
x
