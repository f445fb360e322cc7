// run: -n 2 --keep-going
// exit: 1

// %% what was shown last, and what a cell has shown
int k = 20;
k + 1

// %%
_ * 2

// %%
_1 + _2

// %% a tensor stays the same tensor
torch::ones({2})

// %%
_4.add_(1);
_.sum().item<float>()

// %% a temporary is kept as it is
std::vector<int>{1, 2, 3}

// %%
_6.push_back(4);
_

// %% a variable of a class is that variable
std::vector<int> v{7};
v

// %%
v.push_back(8);
_8.size()

// %% a number is what it was
k

// %%
k = 5;
_10

// %% the same text again, which needs no compiler
k += 1; k

// %%
k += 1; k

// %%
_12 * 100 + _13

// %%
_ == 607

// %% every rank has its own
rank

// %%
_16 + 100

// %% on one rank
%%rank [1]
3.5

// %% the others have none
%%rank [0]
_18

// %% a part of something else is not kept
std::vector<std::string> names{"a"};
names[0]

// %%
_20

// %% a cell that has shown nothing
_21

// %% lambdas and functions see it
auto twice = [] { return _13 * 2; };
twice()

// %%
[](int a) { return a + 1; }

// %%
_24(1)

// %% names of the user come first
auto _ = std::string("mine");
using namespace std::placeholders;
std::bind(std::minus<int>(), _2, _1)(1, 3) + static_cast<int>(_.size())

// %% %undo takes back what a cell has defined
int answer = 41;
int other = 1;

// %%
double answer = 0.5;
answer

// %%
%undo

// %%
answer

// %%
%undo

// %%
answer

// %%
%undo 999

// %% !command
!echo "hello from $0"; echo more >&2

// %%
%env GREETING=hi
!echo "$GREETING"

// %% one that fails
!exit 3

// %%
!no_such_command_of_lockstep

// %% C++ negates
bool done = false;
!done

// %%
!done

// %%
!v.empty()

// %%
bool late = true;
!late && done

// %% input
int number = 7;
std::cin >> number;

// %%
std::string line;
std::getline(std::cin, line);

// %%
int read = std::scanf("%d", &number);
read

// %%
std::ios::sync_with_stdio(false);
std::cin >> number;

// %%
number
