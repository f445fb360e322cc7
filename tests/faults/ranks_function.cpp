// One rank has another definition of a function, which a cell of all ranks calls.
// symptom: replicas diverge, or losses differ, although the code looks the same
// run: `%ranks`
// cause: a function that was defined again on some ranks only
// fix: define it again on all ranks
// ranks: 3
// expect: ranks:mismatch kind=code ranks=1 reference=0,2
// severity: fault

// %% a function
double scale(double x) { return x * 2; }
double other(double x) { return x + 1; }
// %% another on one rank, and what that one calls
%%rank [1]
double scale(double x) { return x * 3; }
// %% a cell of all
double scaled = scale(1) + other(1);
// %% who are the ranks?
%ranks
