// The fields of what a run says of itself, each declared once as those of a row are in region_fields.h: the writer of
// the run directory's lines and their reader are made from these.
#pragma once

#include "core/rows/region_fields.h"
#include "core/sinks/sink.h"

namespace mfu {

template <>
inline constexpr auto kFieldsOf<DeviceInfo> = fields(
    Field{"device", &DeviceInfo::device}, Field{"name", &DeviceInfo::name}, Field{"uuid", &DeviceInfo::uuid},
    Field{"peak_flop_per_s", &DeviceInfo::peak_flop_per_s}, Field{"peak_bytes_per_s", &DeviceInfo::peak_bytes_per_s},
    Field{"peak_source", &DeviceInfo::peak_source}, Field{"dtype", &DeviceInfo::dtype},
    Field{"dtype_source", &DeviceInfo::dtype_source}, Field{"sparse", &DeviceInfo::sparse});

/// Those that a `start` line begins with.
template <>
inline constexpr auto kFieldsOf<RunInfo> = fields(
    Field{"host", &RunInfo::host}, Field{"pid", &RunInfo::pid}, Field{"rank", &RunInfo::rank},
    Field{"local_rank", &RunInfo::local_rank}, Field{"world", &RunInfo::world_size},
    Field{"version", &RunInfo::version}, Field{"commit", &RunInfo::commit, Unit::kNone, AddsUp::kFirst, Null::kUnknown},
    Field{"build", &RunInfo::build, Unit::kNone, AddsUp::kFirst, Null::kUnknown},
    Field{"command", &RunInfo::command, Unit::kNone, AddsUp::kFirst, Null::kUnknown},
    Field{"devices", &RunInfo::devices});

template <>
inline constexpr auto kFieldsOf<Stall> = fields(Field{"since_ns", &Stall::since_ns, Unit::kMoment},
                                                Field{"kernel", &Stall::kernel}, Field{"comm", &Stall::comm},
                                                Field{"comm_kernels", &Stall::comm_kernels},
                                                Field{"collective", &Stall::collective}, Field{"host", &Stall::host});
template <>
inline constexpr auto kFieldsOf<LaunchAccount> = fields(Field{"seen", &LaunchAccount::seen},
                                                        Field{"attributed", &LaunchAccount::attributed},
                                                        Field{"outside", &LaunchAccount::outside},
                                                        Field{"unattributed", &LaunchAccount::unattributed},
                                                        Field{"dropped", &LaunchAccount::dropped},
                                                        Field{"not_timed", &LaunchAccount::not_timed});

template <>
inline constexpr auto kFieldsOf<SelfCost> = fields(Field{"cpu_s", &SelfCost::cpu_s},
                                                   Field{"rss_bytes", &SelfCost::rss_bytes},
                                                   Field{"overhead", &SelfCost::overhead});

}  // namespace mfu
