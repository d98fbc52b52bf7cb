// In prometheus-cpp's own build CMake writes this file. Here everything is linked in and hidden.
#pragma once
#define PROMETHEUS_CPP_CORE_EXPORT
#define PROMETHEUS_CPP_CORE_NO_EXPORT
