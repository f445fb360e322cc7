// An object that needs what nobody defines.
extern "C" {
extern const char* const entry_of_unresolved = "unresolved";
int nobody_defines_this();
int of_unresolved() { return nobody_defines_this(); }
}
