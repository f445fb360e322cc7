// run: -n 2 --keep-going
// exit: 1

// %% a name that nobody knows
int before = 1;
int x = befor + 1;

// %% nothing of that cell remains
int before = 2;
before

// %% an unclosed brace
void f() {

// %% the session goes on
before + 1
