// run: -n 2

// %% a variable, a function, a class
int k = 41;
int twice(int x) { return 2 * x; }
struct Counter {
  int n = 0;
  void add() { ++n; }
};
Counter counter;

// %% used by a later cell
k += 1;
counter.add();
twice(k)

// %% defined again, with another type
std::string k = "a word";
k + " of " + std::to_string(counter.n)

// %% values that differ are shown per rank
rank

// %% a value that is the same everywhere
world_size
