    cmp rdx,0x1
    jne 0
    cmp QWORD PTR [rsi+0x8],0x1
    jne 0
    mov r8,QWORD PTR [rsi]
    mov rax,QWORD PTR [rdi]
    mov eax,DWORD PTR [rax]
    test al,0x2
    je 0
    mov r9d,DWORD PTR [r8+0x8]
    test r9d,r9d
    jle 0
    mov ecx,DWORD PTR [rdi+0x34]
    lea eax,[rcx+0x1]
    cmp eax,DWORD PTR [rdi+0x38]
    je 0
    mov edx,DWORD PTR [rdi+0x30]
    imul rdx,rcx
    add rdx,QWORD PTR [rdi+0x8]
    mov r10,QWORD PTR [r8]
    mov r8d,DWORD PTR [r8+0xc]
    bswap r9d
    bswap r8d
    bswap r10
    mov DWORD PTR [rdx+0x10],r9d
    mov DWORD PTR [rdx+0x14],r8d
    mov QWORD PTR [rdx+0x18],r10
    mov rdx,QWORD PTR [rsi+0x10]
    mov rsi,QWORD PTR [rdi+0x10]
    mov QWORD PTR [rsi+rcx*8],rdx
    mov rdx,QWORD PTR [rdi+0x18]
    mov BYTE PTR [rdx+rcx*1],0x1
    mov DWORD PTR [rdi+0x34],eax
    mov rcx,QWORD PTR [rdi+0x20]
    add eax,DWORD PTR [rdi+0x3c]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rcx],eax
    xor eax,eax
    ret
0:
    push rax
    call QWORD PTR [_ZN8mlx5_wqe7receive6shared18SharedReceiveQueue9post_list]
    add rsp,0x8
    ret
