#include "inspectors/timing/trace_events.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "collectives/transport/streams.h"
#include "inspectors/timing/operator_events.h"
#include "inspectors/trace/program_log.h"
#include "inspectors/trace/time_mark.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

// These are rows of a rank. Each thread with operators has one below.
constexpr int kCellRow = 1, kCollectiveRow = 2, kDeviceRow = 3, kFirstThreadRow = 10;

}  // namespace

TraceEvents::TraceEvents(int rank, int64_t offset_ns) : rank_(rank), offset_ns_(offset_ns) {
  add_name("process_name", 0, fmt::format("rank {}", rank));
}

void TraceEvents::add_cells() {
  std::set<int64_t> cells;
  bool named = false;
  for (const dist::CellSpan& each : dist::cell_spans()) {
    if (each.end_ns == 0) continue;  // the cell that writes the timeline
    if (!std::exchange(named, true)) add_name("thread_name", kCellRow, "cells");
    // A cell with magics in it runs in pieces.
    const int64_t number = dist::cell_number(each.cell);
    add_span(kCellRow, fmt::format("cell {}", number), "cell", each.begin_ns, each.end_ns);
    cells.insert(number);
  }
  counts_.cells = static_cast<int64_t>(cells.size());
}

void TraceEvents::add_collectives() {
  const auto log = program_log();
  if (!log) return;
  constexpr size_t kAll = dist::log_layout::kEntryCapacity;
  log->device_progress().look();  // the log learns what devices have done
  bool named = false;
  for (const dist::CollectiveRecord& each : dist::CollectiveLogReader(log->mapping()).last(kAll)) {
    if (each.done_ns == 0) continue;
    if (!std::exchange(named, true)) add_name("thread_name", kCollectiveRow, "collectives");
    const bool bucket = each.op == "all_reduce" && each.through_c10d;  // made by c10d for a Reducer
    ++(bucket ? counts_.buckets : counts_.collectives);
    // Collectives overlap, so each has a begin and an end with a number of its own instead of a nested span.
    json event = {{"cat", bucket ? "bucket" : "collective"},
                  {"name", fmt::format("{}{} #{}", bucket ? "bucket: " : "", each.op, each.seq)},
                  {"id", fmt::format("{}-{}", rank_, number_++)},
                  {"pid", rank_},
                  {"tid", kCollectiveRow}};
    event["ph"] = "b";
    event["ts"] = microseconds(each.entered_ns);
    event["args"] = {
        {"group", each.group}, {"seq", each.seq}, {"shape", each.shape}, {"dtype", each.dtype}, {"bytes", each.bytes}};
    if (each.place.file.empty()) {
      event["args"]["cell"] = dist::cell_number(each.cell);
      event["args"]["step"] = each.step;
    } else {
      event["args"]["line"] = each.place.str();
    }
    add(event);
    event["ph"] = "e";
    event["ts"] = microseconds(each.done_ns);
    event.erase("args");
    add(event);
  }
}

void TraceEvents::add_device_collectives() {
  const auto context = dist::current_context();
  const auto device = current_accelerator();
  if (!context || !device) return;
  // The clocks meet here: the device has reached the mark when the wait is over.
  c10::Event mark(device->type(), c10::EventFlag::BACKEND_DEFAULT);
  mark.record(dist::current_stream_of(*device));
  wait_for_device(device);
  const int64_t now = dist::monotonic_ns();
  const auto on_host = [&](const c10::Event& event) {
    return now - static_cast<int64_t>(seconds_between(event, mark) * 1e9);
  };
  bool named = false;
  for (const dist::GroupEntry& entry : context->entries()) {
    if (!entry.group->member()) continue;
    for (const auto& span : entry.group->device_spans().all()) {
      if (span->queued.device() != *device) continue;
      if (!std::exchange(named, true)) add_name("thread_name", kDeviceRow, "collectives on " + device->str());
      const std::string group = entry.group->identity().name;
      json event = {{"cat", "device"},
                    {"name", fmt::format("{} #{}", group, span->seq)},
                    {"id", fmt::format("{}-{}", rank_, number_++)},
                    {"pid", rank_},
                    {"tid", kDeviceRow}};
      event["ph"] = "b";
      event["ts"] = microseconds(on_host(span->queued));
      event["args"] = {{"group", group}, {"seq", span->seq}};
      add(event);
      event["ph"] = "e";
      event["ts"] = microseconds(on_host(*span->done));
      event.erase("args");
      add(event);
    }
  }
}

void TraceEvents::add_operators() {
  const auto recorded = recorded_operators();
  if (!recorded) return;
  const std::lock_guard lock(recorded->mutex);
  std::map<uint32_t, int> rows;
  for (const OperatorEvent& each : recorded->events) {
    const auto [row, is_new] = rows.try_emplace(each.thread, kFirstThreadRow + static_cast<int>(rows.size()));
    if (is_new) add_name("thread_name", row->second, fmt::format("operators, thread {}", each.thread));
    add_span(row->second, recorded->names[each.name], each.backward ? "backward" : "operator", each.begin_ns,
             each.end_ns);
  }
  counts_.operators = static_cast<int64_t>(recorded->events.size());
  counts_.left_out = recorded->left_out;
}

void TraceEvents::add(const json& event) {
  text_ += (text_.empty() ? "" : ",\n") + event.dump(-1, ' ', false, json::error_handler_t::replace);
}

void TraceEvents::add_name(const char* what, int row, const std::string& name) {
  add({{"ph", "M"}, {"name", what}, {"pid", rank_}, {"tid", row}, {"args", {{"name", name}}}});
}

void TraceEvents::add_span(int row, const std::string& title, const char* category, int64_t begin_ns, int64_t end_ns) {
  add({{"ph", "X"},
       {"name", title},
       {"cat", category},
       {"pid", rank_},
       {"tid", row},
       {"ts", microseconds(begin_ns)},
       {"dur", static_cast<double>(end_ns - begin_ns) * 1e-3}});
}

}  // namespace lockstep::inspect
