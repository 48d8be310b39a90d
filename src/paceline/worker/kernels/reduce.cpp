// Sums over the ranks of one machine through shared memory. Plain C interface, called by worker/world/shared_all_reduce.py.
//
// Every rank has a line (how often it has published, and up to where it has read) and a slot for its message. A round:
// 1. wait until all ranks have read what this rank published last, which they hardly ever have not;
// 2. write the slot and publish it;
// 3. wait until all have published;
// 4. read all slots in the order of the ranks, so that every rank computes the same bits, and release them.
// Long pieces are summed in parts: each rank sums one part, then copies the parts of the others.
//
// A compiled step reads the slots of the others by itself, between reduce_wait and reduce_release. Between reduce_publish and
// reduce_wait it does the work that needs no other rank.
//
// Nothing here waits for ever: after `slice_us` a call returns WAITING and is made again, so that Python can handle signals,
// peers that died and its time limit.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <sched.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

constexpr int DONE = 0, WAITING = 1, DIFFERENT = 2;
constexpr uint64_t LINE = 128;  // two cache lines: neighbours are fetched in pairs

struct Line {  // of one rank; zeros at first
  std::atomic<uint32_t> published;  // how often it has published; wraps
  std::atomic<uint32_t> sleepers;   // how many ranks sleep until it publishes again
  std::atomic<int32_t> core;        // where it ran when it published
  std::atomic<uint32_t> read;       // the last round whose slots it has read
  uint64_t tag;                     // what its message is
};
static_assert(sizeof(Line) <= LINE, "a rank's counters fit into its line");
static_assert(std::atomic<uint32_t>::is_always_lock_free, "processes share no locks");

struct State {  // private to one rank; zeros at first. It keeps the progress of a message between two calls
  uint64_t at;         // bytes of the message that are summed
  uint32_t published;  // as in my line
  uint32_t phase;      // 0: nothing of this piece is done; 1: waits for all pieces; 2: waits for all parts
  uint32_t other;      // after DIFFERENT: the rank whose message does not match, and its tag
  uint64_t theirs;
};

struct Layout {
  unsigned char *memory;
  uint64_t slot_bytes, part_bytes;  // pieces longer than part_bytes are summed in parts
  uint32_t rank, size;
  uint32_t spin_us;  // how long to spin before sleeping; 0 where ranks share cores
};

Line &line(const Layout &b, uint32_t rank) { return *reinterpret_cast<Line *>(b.memory + rank * LINE); }

unsigned char *slot(const Layout &b, uint32_t rank) { return b.memory + b.size * LINE + rank * b.slot_bytes; }

uint64_t now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000u + uint64_t(t.tv_nsec) / 1000u;
}

inline int32_t core_here() {
#if defined(__linux__)
  return sched_getcpu();
#else
  return -1;
#endif
}

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void wake(const Layout &b, State &s) {
  Line &mine = line(b, b.rank);
  mine.core.store(core_here(), std::memory_order_relaxed);
  mine.published.store(++s.published, std::memory_order_seq_cst);  // releases all that was written before
#if defined(__linux__)
  if (mine.sleepers.load(std::memory_order_seq_cst))
    syscall(SYS_futex, &mine.published, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
#endif
}

bool is_there(const Line &theirs, uint32_t wanted) {
  return int32_t(theirs.published.load(std::memory_order_acquire) - wanted) >= 0;
}

bool sleep_until(Line &theirs, uint32_t wanted, uint64_t us) {
  theirs.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = theirs.published.load(std::memory_order_seq_cst);
  if (int32_t(seen - wanted) < 0) {
    timespec t{time_t(us / 1000000), long(us % 1000000) * 1000};
#if defined(__linux__)
    syscall(SYS_futex, &theirs.published, FUTEX_WAIT, seen, &t, nullptr, 0);
#else
    t = {0, 100000};
    nanosleep(&t, nullptr);
#endif
  }
  theirs.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return is_there(theirs, wanted);
}

// Whether all have published as often as this rank; at the latest after `slice_us`.
bool all_there(const Layout &b, const State &s, uint64_t slice_us) {
  uint64_t began = 0;
  for (uint32_t other = 0; other < b.size; ++other) {
    Line &theirs = line(b, other);
    while (!is_there(theirs, s.published)) {
      if (!began) began = now_us();
      uint64_t waited = now_us() - began;
      // Spin where every rank has a core of its own; a rank last seen on this core cannot run before this one leaves it.
      if (waited < b.spin_us && theirs.core.load(std::memory_order_relaxed) != core_here()) {
        for (int i = 0; i < 64 && !is_there(theirs, s.published); ++i) relax();
      } else if (waited >= slice_us) {
        return false;
      } else if (!sleep_until(theirs, s.published, slice_us - waited) && now_us() - began >= slice_us) {
        return false;
      }
    }
  }
  return true;
}

// Whether all have read what this rank published last; at the latest after `slice_us`. They read when this rank did, so usually one
// check is enough; a rank that was preempted meanwhile is waited for asleep.
bool all_read(const Layout &b, const State &s, uint64_t slice_us) {
  uint64_t began = 0;
  for (uint32_t other = 0; other < b.size; ++other) {
    if (other == b.rank) continue;
    while (int32_t(line(b, other).read.load(std::memory_order_acquire) - s.published) < 0) {
      if (!began) began = now_us();
      const uint64_t waited = now_us() - began;
      if (waited >= slice_us) return false;
      if (waited < b.spin_us) {
        for (int i = 0; i < 64; ++i) relax();
      } else {
        const timespec t{0, 50000};
        nanosleep(&t, nullptr);
      }
    }
  }
  return true;
}

// Write to this rank's slot with non-temporal stores where the processor has them. The other ranks have the slot's cache lines since
// they read them, and a normal store fetches them back one by one (two cores of an EPYC, 68 KB: 29 us; this way 5, and the others read
// as quickly). Long pieces use memcpy, which is quicker for them. A slot is aligned to 64 bytes.
void put(unsigned char *to, const unsigned char *from, uint64_t nbytes) {
#if defined(__SSE2__)
  uint64_t at = 0;
  for (; at + 64 <= nbytes; at += 64)
    for (uint64_t i = at; i < at + 64; i += 16)
      _mm_stream_si128(reinterpret_cast<__m128i *>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + i)));
  std::memcpy(to + at, from + at, nbytes - at);
  _mm_sfence();
#else
  std::memcpy(to, from, nbytes);
#endif
}

void have_read(const Layout &b, const State &s) { line(b, b.rank).read.store(s.published, std::memory_order_release); }

// Called when the slot is written.
void publish(const Layout &b, State &s, uint64_t tag) {
  line(b, b.rank).tag = tag;
  wake(b, s);
  s.phase = 1;
}

// Wait until all ranks have published, and compare the tags of their messages.
int wait_for_all(const Layout &b, State &s, uint64_t tag, uint64_t slice_us) {
  if (!all_there(b, s, slice_us)) return WAITING;
  for (uint32_t rank = 0; rank < b.size; ++rank)
    if (line(b, rank).tag != tag) {
      s.other = rank;
      s.theirs = line(b, rank).tag;
      return DIFFERENT;
    }
  return DONE;
}

// Add in the order of the ranks, some thousand numbers at a time: they stay in the L1 cache until all are added.
template <typename T>
void sum_slots(const Layout &b, uint64_t from, uint64_t to, T *__restrict out) {
  constexpr uint64_t BLOCK = 2048;
  const T *__restrict first = reinterpret_cast<const T *>(slot(b, 0));
  const T *__restrict second = reinterpret_cast<const T *>(slot(b, 1));
  for (uint64_t start = from; start < to; start += BLOCK) {
    const uint64_t stop = start + BLOCK < to ? start + BLOCK : to;
    for (uint64_t i = start; i < stop; ++i) out[i] = first[i] + second[i];
    for (uint32_t rank = 2; rank < b.size; ++rank) {
      const T *__restrict more = reinterpret_cast<const T *>(slot(b, rank));
      for (uint64_t i = start; i < stop; ++i) out[i] += more[i];
    }
  }
}

template <typename T>
int sum_message(const Layout &b, State &s, unsigned char *message, uint64_t nbytes, uint64_t tag, uint64_t slice_us) {
  for (;;) {
    const uint64_t left = nbytes - s.at, piece = left < b.slot_bytes ? left : b.slot_bytes;
    const uint64_t num = piece / sizeof(T), each = (num + b.size - 1) / b.size;
    const bool in_parts = piece > b.part_bytes;
    const auto begin = [&](uint32_t rank) { return rank * each < num ? rank * each : num; };
    if (s.phase == 0) {
      if (!all_read(b, s, slice_us)) return WAITING;
      if (in_parts) std::memcpy(slot(b, b.rank), message + s.at, piece);
      else put(slot(b, b.rank), message + s.at, piece);
      publish(b, s, tag);
    }
    if (s.phase < 2) {
      const int status = wait_for_all(b, s, tag, slice_us);
      if (status != DONE) return status;
      if (in_parts) {  // back into this rank's slot: only this rank reads the values that it overwrites
        const uint64_t from = begin(b.rank), to = begin(b.rank + 1);
        sum_slots<T>(b, from, to, reinterpret_cast<T *>(message + s.at));
        std::memcpy(slot(b, b.rank) + from * sizeof(T), message + s.at + from * sizeof(T), (to - from) * sizeof(T));
        wake(b, s);
        s.phase = 2;
      } else {
        sum_slots<T>(b, 0, num, reinterpret_cast<T *>(message + s.at));
      }
    }
    if (s.phase == 2) {
      if (!all_there(b, s, slice_us)) return WAITING;
      for (uint32_t rank = 0; rank < b.size; ++rank) {
        if (rank == b.rank) continue;
        const uint64_t from = begin(rank) * sizeof(T), to = begin(rank + 1) * sizeof(T);
        std::memcpy(message + s.at + from, slot(b, rank) + from, to - from);
      }
    }
    have_read(b, s);
    s.at += piece;
    s.phase = 0;
    if (s.at == nbytes) {
      s.at = 0;
      return DONE;
    }
  }
}

}  // namespace

extern "C" {

uint64_t reduce_bytes(uint32_t size, uint64_t slot_bytes) { return size * (LINE + slot_bytes); }

// Where a rank's slot begins, from the beginning of the memory.
uint64_t reduce_slot(uint32_t rank, uint32_t size, uint64_t slot_bytes) { return size * LINE + rank * slot_bytes; }

// `width`: 4 for float, 8 for double; `nbytes` is not 0. The tag is what all ranks must have in common.
int reduce_sum(const Layout *layout, State *state, void *message, uint64_t nbytes, uint32_t width, uint64_t slice_us) {
  unsigned char *bytes = static_cast<unsigned char *>(message);
  const uint64_t tag = nbytes * 16 + width;
  return width == 4 ? sum_message<float>(*layout, *state, bytes, nbytes, tag, slice_us)
                    : sum_message<double>(*layout, *state, bytes, nbytes, tag, slice_us);
}

// A round of a compiled step: write and publish the message; wait for all; the step reads the slots; release them.
int reduce_publish(const Layout *layout, State *state, const void *message, uint64_t nbytes, uint32_t width, uint64_t slice_us) {
  if (!all_read(*layout, *state, slice_us)) return WAITING;
  put(slot(*layout, layout->rank), static_cast<const unsigned char *>(message), nbytes);
  publish(*layout, *state, nbytes * 16 + width);
  return DONE;
}

int reduce_wait(const Layout *layout, State *state, const void *, uint64_t nbytes, uint32_t width, uint64_t slice_us) {
  const int status = wait_for_all(*layout, *state, nbytes * 16 + width, slice_us);
  if (status == DONE) state->phase = 0;
  return status;
}

void reduce_release(const Layout *layout, State *state) { have_read(*layout, *state); }
}
