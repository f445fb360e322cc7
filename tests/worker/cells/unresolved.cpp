// A cell that refers to what nothing defines.
#include "tests/worker/cells/fixture.h"

namespace lost {
void function_of_nobody(int);
}
static void calls() { lost::function_of_nobody(1); }
CELL(unresolved, calls);
