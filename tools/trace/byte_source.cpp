#include "tools/trace/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace mfu {

struct ByteSource::Impl {
  std::string name;
  int fd = -1;
  std::span<const char> memory;  ///< when fd < 0
  std::size_t memory_at = 0;
  std::uint64_t stored = 0;
  std::uint64_t stored_read = 0;
  bool is_gzip = false;
  bool cut = false;
  bool garbage = false;
  bool finished = false;
  bool inflating = false;     ///< `zip` is initialised
  bool inflated_any = false;  ///< some byte came out, so the file was gzip indeed
  z_stream zip{};
  std::vector<char> packed;  ///< input of inflate

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (inflating) inflateEnd(&zip);
    if (fd >= 0) ::close(fd);
  }

  /// Bytes as stored; fewer than asked for only at the end.
  Result<std::size_t> read_stored(char* into, std::size_t size) {
    std::size_t got = 0;
    if (fd < 0) {
      got = std::min(size, memory.size() - memory_at);
      if (got > 0) std::memcpy(into, memory.data() + memory_at, got);
      memory_at += got;
    } else {
      while (got < size) {
        const ssize_t n = ::read(fd, into + got, size - got);
        if (n == 0) break;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return Error{name + ": cannot be read: " + std::strerror(errno)};
        got += static_cast<std::size_t>(n);
      }
    }
    stored_read += got;
    return got;
  }

  Result<std::size_t> read_unpacked(char* into, std::size_t size) {
    std::size_t got = 0;
    while (got < size && !finished) {
      if (zip.avail_in == 0) {
        Result<std::size_t> more = read_stored(packed.data(), packed.size());
        if (!more) return more;
        if (more.value() == 0) {
          cut = cut || inflating_member;
          finished = true;
          break;
        }
        zip.next_in = reinterpret_cast<Bytef*>(packed.data());
        zip.avail_in = static_cast<uInt>(more.value());
      }
      const auto room = static_cast<uInt>(std::min<std::size_t>(size - got, 1u << 30));
      zip.next_out = reinterpret_cast<Bytef*>(into + got);
      zip.avail_out = room;
      inflating_member = true;
      const int status = inflate(&zip, Z_NO_FLUSH);
      got += room - zip.avail_out;
      inflated_any = inflated_any || room != zip.avail_out;
      if (status == Z_STREAM_END) {
        inflating_member = false;
        members += 1;
        inflateReset(&zip);  // gzip files may be joined
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        finished = true;
        if (members > 0 && zip.total_out == 0) {
          garbage = true;  // a whole member was read before
        } else if (inflated_any) {
          cut = true;
        } else {
          return Error{name + ": starts like gzip, but cannot be unpacked (" +
                       (zip.msg != nullptr ? zip.msg : "bad data") + "): expected a .gz file"};
        }
      }
    }
    return got;
  }

  std::uint64_t members = 0;
  bool inflating_member = false;
};

ByteSource::ByteSource(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  // The first two bytes decide; they are put back by starting over.
  unsigned char magic[2] = {0, 0};
  std::size_t got = 0;
  if (impl_->fd >= 0) {
    got = static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(impl_->fd, magic, 2, 0)));
  } else if (impl_->memory.size() >= 2) {
    std::memcpy(magic, impl_->memory.data(), 2);
    got = 2;
  }
  if (got == 2 && magic[0] == 0x1F && magic[1] == 0x8B) {
    impl_->is_gzip = true;
    impl_->inflating = inflateInit2(&impl_->zip, 15 + 16) == Z_OK;
    constexpr std::uint64_t kPackedBytes = 256 * 1024;  // read at once; a smaller file whole
    impl_->packed.resize(impl_->stored == 0 ? kPackedBytes : std::min(impl_->stored, kPackedBytes));
  }
}
ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource& ByteSource::operator=(ByteSource&&) noexcept = default;
ByteSource::~ByteSource() = default;

Result<ByteSource> ByteSource::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->name = path;
  impl->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (impl->fd < 0) return Error{path + ": cannot be opened: " + std::strerror(errno)};
  struct stat facts {};
  if (::fstat(impl->fd, &facts) != 0) return Error{path + ": cannot be looked at: " + std::strerror(errno)};
  if (S_ISDIR(facts.st_mode)) return Error{path + ": is a folder: expected a trace file"};
  if (S_ISREG(facts.st_mode)) {
    if (facts.st_size == 0) return Error{path + ": is empty: expected a Kineto JSON or Nsight Systems SQLite trace"};
    impl->stored = static_cast<std::uint64_t>(facts.st_size);
    (void)::posix_fadvise(impl->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  return ByteSource(std::move(impl));
}

ByteSource ByteSource::over(std::span<const char> bytes, std::string name) {
  auto impl = std::make_unique<Impl>();
  impl->name = std::move(name);
  impl->memory = bytes;
  impl->stored = bytes.size();
  return ByteSource(std::move(impl));
}

Result<std::size_t> ByteSource::read(std::span<char> into) {
  if (!impl_->is_gzip) return impl_->read_stored(into.data(), into.size());
  if (!impl_->inflating) return Error{impl_->name + ": no memory to unpack it"};
  return impl_->read_unpacked(into.data(), into.size());
}

const std::string& ByteSource::name() const noexcept { return impl_->name; }
bool ByteSource::gzip() const noexcept { return impl_->is_gzip; }
std::uint64_t ByteSource::stored_bytes() const noexcept { return impl_->stored; }
std::uint64_t ByteSource::stored_bytes_read() const noexcept { return impl_->stored_read; }
bool ByteSource::cut_off() const noexcept { return impl_->cut; }
bool ByteSource::trailing_garbage() const noexcept { return impl_->garbage; }

}  // namespace mfu
