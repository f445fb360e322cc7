#include <cstdlib>
int at_load = std::atoi("3");
