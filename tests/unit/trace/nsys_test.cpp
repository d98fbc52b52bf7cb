// What the Nsight Systems reader makes of exports of every age, and of broken ones. The databases are made here.
#include "tools/trace/nsys.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstring>
#include <string>

#include "tools/replay/trace_figures.h"

namespace mfu {
namespace {

constexpr std::int64_t kPidA = 100;
constexpr std::int64_t kPidB = 200;
constexpr std::int64_t global(std::int64_t pid, std::int64_t tid) {
  return (std::int64_t{1} << 48) | (pid << 24) | tid;  // in virtual machine 1
}

/// The bytes of a database made by `sql`. `@A`, `@B` stand for the globalPids, `@a`, `@b` for a thread of each.
std::string database(std::string sql) {
  const auto replace = [&sql](const std::string& from, std::int64_t to) {
    for (std::size_t at = sql.find(from); at != sql.npos; at = sql.find(from)) {
      sql.replace(at, from.size(), std::to_string(to));
    }
  };
  replace("@A", global(kPidA, 0));
  replace("@B", global(kPidB, 0));
  replace("@a", global(kPidA, 101));
  replace("@b", global(kPidB, 201));
  sqlite3* db = nullptr;
  sqlite3_open(":memory:", &db);
  char* problem = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &problem), SQLITE_OK) << problem;
  sqlite3_int64 size = 0;
  unsigned char* bytes = sqlite3_serialize(db, "main", &size, 0);
  std::string out(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
  sqlite3_free(bytes);
  sqlite3_close(db);
  return out;
}

Result<Trace> read(const std::string& bytes) { return read_nsys_bytes(bytes, "t.sqlite"); }

constexpr const char* kStrings =
    "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);"
    "INSERT INTO StringIds VALUES (1,'void gemm<float>()'),(2,'gemm'),(3,'ncclDevKernel_AllReduce(x)'),"
    "(4,'ncclDevKernel_AllReduce'),(5,'cudaLaunchKernel_v7000'),(6,'cudaGraphLaunch_v10000'),(7,'registered');";
constexpr const char* kKernelTable =
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, "
    "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);";
constexpr const char* kRuntimeTable =
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
    "correlationId INTEGER, nameId INTEGER, returnValue INTEGER);";
constexpr const char* kNvtxTable =
    "CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, "
    "textId INTEGER, domainId INTEGER, uint64Value INTEGER);";

std::string join(std::initializer_list<const char*> parts) {
  std::string out;
  for (const char* part : parts) out.append(part);
  return out;
}

TEST(Nsys, CorrelationIdsBelongToTheirProcess) {
  const auto trace =
      read(database(join({kStrings, kKernelTable, kRuntimeTable,
                          "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10,20,0,1,7,5,@A,1,2),(30,50,0,1,7,5,@B,3,4);"
                          "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1,3,0,@a,5,5,0),(2,4,0,@b,5,6,0);"})));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const auto figures = process_figures(trace.value());
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_EQ(figures[0].process, "100");
  EXPECT_EQ(figures[0].totals[Figure::kComputeSum], 10);
  EXPECT_EQ(figures[0].launches.graph_launches, 0);
  EXPECT_EQ(figures[1].totals[Figure::kNcclSum], 20);
  EXPECT_EQ(figures[1].launches.kernels_from_graphs, 1);
  ASSERT_EQ(figures[1].gpu_ops_by_launching_thread.size(), 1u);
  EXPECT_EQ(figures[1].gpu_ops_by_launching_thread[0].first, std::to_string(global(kPidB, 201)));
}

TEST(Nsys, GridsAndDirections) {
  const auto trace = read(database(
      join({kStrings,
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
            "correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER, gridX INTEGER, "
            "gridY INTEGER, gridZ INTEGER);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
            "correlationId INTEGER, globalPid INTEGER, copyKind INTEGER, bytes INTEGER);"
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10,20,0,7,5,@A,1,2,300,2,1),(20,30,0,7,6,@A,1,2,-1,9,1);"
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (30,40,0,7,7,@A,1,64),(40,50,0,7,8,@A,2,64),"
            "(50,60,0,7,9,@A,8,64),(60,70,0,7,10,@A,10,64),(70,80,0,7,11,@A,99,64);"})));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->activities.size(), 7u);
  const auto record = [&](std::size_t i) { return to_kernel_record(*trace, trace->activities[i]); };
  EXPECT_EQ(record(0).grid(), (Grid{300, 2, 1}));
  EXPECT_EQ(record(1).grid(), (Grid{0, 9, 1}));  // no side is negative
  EXPECT_EQ(record(2).direction, CopyDirection::kToDevice);
  EXPECT_EQ(record(3).direction, CopyDirection::kToHost);
  EXPECT_EQ(record(4).direction, CopyDirection::kWithin);
  EXPECT_EQ(record(5).direction, CopyDirection::kWithin);
  EXPECT_EQ(record(6).direction, CopyDirection::kUnknown);
  EXPECT_EQ(record(6).extent, 64u);
}

TEST(Nsys, AnExportWithoutGridsHasNone) {
  const auto trace = read(database(
      join({kStrings, kKernelTable, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10,20,0,1,7,5,@A,1,2);"})));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(to_kernel_record(*trace, trace->activities.at(0)).grid(), Grid{});
}

TEST(Nsys, OfSeveralRecordsWithOneIdTheFirstIsTheLaunch) {
  const auto trace =
      read(database(join({kStrings, kKernelTable, kRuntimeTable,
                          "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10,20,0,1,7,5,@A,1,2);"
                          "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (4,5,0,@a,5,5,0),(2,8,67,@a,5,5,0);"})));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->launches[trace->activities[0].launch].begin_ns, 2);
  const auto figures = process_figures(trace.value());
  EXPECT_EQ(figures[0].launches.host_calls, 1);
  EXPECT_EQ(figures[0].notes.at("duplicate_correlation_on_host"), 1u);
}

TEST(Nsys, RangesByTypeNameAndDomain) {
  const auto trace =
      read(database(join({kStrings, kNvtxTable,
                          "INSERT INTO NVTX_EVENTS VALUES (0,0,75,'NCCL',@a,NULL,3,NULL);"
                          "INSERT INTO NVTX_EVENTS VALUES (-5,9,59,'aten::mm, seq = 4, op_id = 7',@a,NULL,0,NULL);"
                          "INSERT INTO NVTX_EVENTS VALUES (1,2,60,NULL,@a,7,3,42);"
                          "INSERT INTO NVTX_EVENTS VALUES (1,NULL,59,'open',@a,NULL,0,NULL);"
                          "INSERT INTO NVTX_EVENTS VALUES (1,NULL,34,'mark',@a,NULL,0,NULL);"
                          "INSERT INTO NVTX_EVENTS VALUES (8,4,59,'back',@a,NULL,0,NULL);"
                          "INSERT INTO NVTX_EVENTS VALUES ('x',4,59,'bad',@a,NULL,0,NULL);"
                          "INSERT INTO NVTX_EVENTS VALUES (1,2,59,NULL,@a,999,0,NULL);"})));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->ranges.size(), 4u);
  EXPECT_EQ(trace->strings.at(trace->ranges[0].key), "aten::mm");
  EXPECT_EQ(trace->ranges[0].begin_ns, -5);
  EXPECT_EQ(trace->strings.at(trace->ranges[1].name), "registered");
  EXPECT_EQ(trace->strings.at(trace->ranges[1].domain), "NCCL");
  EXPECT_EQ(trace->ranges[1].kind, RangeKind::kStartEnd);
  EXPECT_EQ(trace->ranges[1].payload, 42);
  EXPECT_EQ(trace->strings.at(trace->ranges[3].name), "StringIds[999]");
  const TraceNotes& notes = trace->processes[0].notes;
  EXPECT_EQ(notes.at("unterminated_ranges"), 1u);
  EXPECT_EQ(notes.at("negative_durations"), 1u);
  EXPECT_EQ(notes.at("rows_with_unusable_time"), 1u);
  EXPECT_EQ(trace->notes.at("string_ids_without_string"), 1u);
  EXPECT_EQ(trace->nvtx_domains, std::vector<std::string>{"NCCL"});
}

// The default capture mode has one row per graph launch and no kernels: busy, but no operation that could be counted.
TEST(Nsys, WholeGraphsKeepTheGpuBusy) {
  const auto trace =
      read(database(join({kStrings, kRuntimeTable,
                          "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INTEGER, end INTEGER, deviceId INTEGER, "
                          "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER);"
                          "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (10,40,0,7,5,@A,1),(0,0,0,7,6,@A,1);"
                          "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1,3,0,@a,5,6,0);"})));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const auto figures = process_figures(trace.value());
  EXPECT_EQ(figures[0].totals[Figure::kGpuBusy], 30);
  EXPECT_EQ(figures[0].totals[Figure::kGpuOps], 0);
  EXPECT_EQ(figures[0].notes.at("whole_graph_records"), 1u);
  EXPECT_EQ(trace->notes.at("graph_records_without_time"), 1u);
}

TEST(Nsys, DevicesAreNumberedPerProcess) {
  const auto trace = read(
      database(join({kStrings, kKernelTable,
                     "CREATE TABLE TARGET_INFO_GPU(id INTEGER, name TEXT, smCount INTEGER, memoryBandwidth INTEGER);"
                     "INSERT INTO TARGET_INFO_GPU VALUES (3,'H100',132,3350),(4,'H200',132,4800);"
                     "CREATE TABLE TARGET_INFO_CUDA_DEVICE(gpuId INTEGER, cudaId INTEGER, pid INTEGER);"
                     "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (3,0,100),(4,0,200);"
                     "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10,20,0,1,7,5,@A,1,2),(30,50,0,1,7,5,@B,3,4);"})));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->devices.size(), 2u);
  EXPECT_EQ(trace->devices[0].facts.name, "H100");
  EXPECT_EQ(trace->devices[1].facts.name, "H200");
  EXPECT_EQ(trace->devices[1].memory_bytes_per_s, 4800);
  EXPECT_EQ(trace->gpu_names, (std::vector<std::string>{"H100", "H200"}));
}

TEST(Nsys, ErrorsNameFileTableAndExpectation) {
  const auto message = [](const std::string& bytes) {
    const auto trace = read(bytes);
    return trace.ok() ? std::string("no error") : trace.error().message;
  };
  EXPECT_EQ(message(database("CREATE TABLE a(b);")).find("t.sqlite: is an SQLite file without any table of Nsight"),
            0u);
  EXPECT_EQ(message(database("CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER);")),
            "t.sqlite: table NVTX_EVENTS has no column eventType: expected an Nsight Systems SQLite export");
  EXPECT_NE(message("SQLite format 3").find("t.sqlite: "), std::string::npos);
  const std::string whole = database(join({kStrings, kKernelTable}));
  EXPECT_NE(message(whole.substr(0, whole.size() / 2)).find("t.sqlite: "), std::string::npos);
}

TEST(Nsys, AnExportWithoutTracedTablesIsEmptyNotWrong) {
  const auto trace = read(database(kStrings));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_TRUE(process_figures(trace.value()).empty());
}

// A view instead of a table could compute anything; a table of that name only is read.
TEST(Nsys, ViewsAreNotLookedInto) {
  const auto trace = read(database(join({kStrings,
                                         "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 0 UNION ALL "
                                         "SELECT start + 1 FROM n) SELECT start, start AS end FROM n;"})));
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_TRUE(trace->ranges.empty());
}

}  // namespace
}  // namespace mfu
