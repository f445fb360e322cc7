// The machines of a process that mpirun has started, by the variables of Open MPI and of MPICH.
#include "shell/hosts/host.h"
#include "shell/hosts/mpi_hosts.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <map>

namespace lockstep::shell {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MpiPlaceTest : public ::testing::Test {
 protected:
  ~MpiPlaceTest() override {
    for (const auto& [name, value] : set_) ::unsetenv(name.c_str());
  }
  void set(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    set_.insert(variables.begin(), variables.end());
  }
  std::vector<std::string> hosts(const std::string& daemons, const std::string& with_ranks) {
    set({{"OMPI_MCA_orte_node_regex", daemons}, {"OMPI_MCA_orte_num_nodes", with_ranks}});
    std::vector<std::string> names;
    for (const Host& each : hosts_of_mpi_place()) names.push_back(each.name);
    return names;
  }

 private:
  std::map<std::string, std::string> set_;
};

TEST_F(MpiPlaceTest, IsThatOfMpirunsOwnTasksOnSeveralMachines) {
  EXPECT_FALSE(mpi_place());
  set({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
  EXPECT_FALSE(mpi_place()) << "srun sets these, too";
  set({{"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}});
  EXPECT_FALSE(mpi_place()) << "one machine";
  set({{"MPI_LOCALNRANKS", "2"}});
  ASSERT_TRUE(mpi_place());
  EXPECT_EQ(mpi_place()->task, 3);
  EXPECT_TRUE(mpi_place()->has_others_here);
  set({{"OMPI_COMM_WORLD_RANK", "0"},
       {"OMPI_COMM_WORLD_SIZE", "2"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_EQ(mpi_place()->task, 0);
  EXPECT_FALSE(mpi_place()->has_others_here);
}

TEST_F(MpiPlaceTest, HostsAreThoseOfTheDaemons) {
  EXPECT_THAT(hosts("login,n[2:7-8,10]x,solo@0(5)", "4"), ElementsAre("n07x", "n08x", "n10x", "solo"));
  EXPECT_THAT(hosts("a1,b@0(2)", "2"), ElementsAre("a1", "b"));
  EXPECT_THAT(hosts(this_host() + ",b@0(2)", "2"), ElementsAre("b"));
  // What is no such list makes no list without an end.
  EXPECT_THAT(hosts("n[1:1-2000000000]@0(2)", "2"), IsEmpty());
}

TEST_F(MpiPlaceTest, HostsOfHydraEndBeforeTheProgram) {
  const auto names = [](std::vector<std::string> words) {
    std::vector<std::string> names;
    for (const Host& each : hydra_hosts(std::move(words))) names.push_back(each.name);
    return names;
  };
  EXPECT_THAT(names({"mpiexec", "-hosts", "a", "b.c:2", "-n", "2"}), ElementsAre("a", "b.c"));
  EXPECT_THAT(names({"mpiexec", "-hosts", "a", "b", "env", "X=1"}), ElementsAre("a", "b"));
  EXPECT_THAT(names({"mpiexec", "-hosts", "a", "b", "/opt/wrapper", "c"}), ElementsAre("a", "b"));
  EXPECT_THAT(names({"mpiexec", "-hosts"}), IsEmpty());
}

}  // namespace
}  // namespace lockstep::shell
