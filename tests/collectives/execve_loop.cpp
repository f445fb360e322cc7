// Starts itself again, without end, for marked_processes_test.cpp.
#include <unistd.h>

int main(int, char** arguments) { return execv(arguments[0], arguments); }
