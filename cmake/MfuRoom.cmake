# Rooms: the folders that the code is divided into. A room is one static library, and its include path is its law: it
# sees the headers of the rooms that it names, and of those that they name, and no others.
#
#   mfu_room(NAME [PATH core/NAME] [SEES room...] [PRIVATE library...] [EXCLUDE name...] [SOURCES file...] [SMALL])
#
# SMALL: nothing of it runs per launch, range or record, so wheels have it compiled for size.
# In optimised builds the files of these rooms and of the tools are compiled six at a time: half of the work is their headers.
#
# makes the target mfu_NAME from every .cpp below PATH, without the files and folders that EXCLUDE names. Headers are included as
# "PATH/file.h": the room's include root holds links to its own headers alone, so a room that is not named is not found.
# mfu_include_root(NAME PATH) makes the interface target mfu_NAME_headers alone, for code that is no static library.
function(mfu_include_root name path)
  set(root ${CMAKE_BINARY_DIR}/include/${name})
  get_filename_component(parent ${root}/${path} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${path} ${root}/${path} SYMBOLIC)
  add_library(mfu_${name}_headers INTERFACE)
  target_include_directories(mfu_${name}_headers INTERFACE ${root})
endfunction()

function(mfu_room name)
  cmake_parse_arguments(room "SMALL" "PATH" "SEES;PRIVATE;EXCLUDE;SOURCES" ${ARGN})
  if(NOT room_PATH)
    set(room_PATH core/${name})
  endif()
  set(here ${CMAKE_SOURCE_DIR}/${room_PATH})
  set(root ${CMAKE_BINARY_DIR}/include/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${here}/*.cpp)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${here}/*.h)
  foreach(file ${room_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX "^${here}/${file}(/|$)")
    list(FILTER headers EXCLUDE REGEX "^${here}/${file}(/|$)")
  endforeach()
  # A link to each header, not to the folder: a room inside another one is not seen through it.
  file(REMOVE_RECURSE ${root})
  file(GLOB_RECURSE included CONFIGURE_DEPENDS ${here}/*.inc)
  foreach(header ${headers} ${included})
    file(RELATIVE_PATH name_in_root ${CMAKE_SOURCE_DIR} ${header})
    get_filename_component(folder ${root}/${name_in_root} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    file(CREATE_LINK ${header} ${root}/${name_in_root} SYMBOLIC)
  endforeach()
  list(TRANSFORM headers REPLACE "^${here}" "${root}/${room_PATH}")
  list(TRANSFORM room_SEES PREPEND mfu_)
  add_library(mfu_${name} STATIC ${sources} ${room_SOURCES})
  target_sources(mfu_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${root} FILES ${headers})  # each header compiles alone
  set_target_properties(mfu_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(mfu_${name} PUBLIC mfu_flags ${room_SEES} PRIVATE ${room_PRIVATE})
  if(room_SMALL AND MFU_OLD_GLIBC)
    target_compile_options(mfu_${name} PRIVATE -Os)
  endif()
  if(CMAKE_BUILD_TYPE STREQUAL Release AND (room_SMALL OR room_PATH MATCHES "^tools/"))
    set_target_properties(mfu_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
endfunction()
